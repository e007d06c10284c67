-- Tell, or write, which version of the layout the keys have (S16).
-- shared: moment
--
-- KEYS     the namespace's prefix
-- ARGV     clock, '' or the version to write, the oldest version of the code that can use it
-- returns  {now, version or '', the oldest code's version that can use it or ''}
-- time     O(1)
local version = tonumber(call('HGET', P .. 'schema', 'version') or '')
if ARGV[2] ~= '' and (not version or version < tonumber(ARGV[2])) then
  call('HSET', P .. 'schema', 'version', ARGV[2], 'usable_from', ARGV[3])
end
return {now, call('HGET', P .. 'schema', 'version') or '', call('HGET', P .. 'schema', 'usable_from') or ''}
