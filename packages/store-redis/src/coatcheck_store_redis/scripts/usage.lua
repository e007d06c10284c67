-- Tell how gates stand (S11).
-- shared: moment records gates
--
-- KEYS     the namespace's prefix
-- ARGV     clock, 'all', name to go on after or '', limit; or 'named', name, ...
-- returns  {name to go on after or '', for each defined gate: name, concurrency, rate's count, its window, paused (1 or ''),
--          reason, who, since, until, slots held, grants in the window}
-- time     O(gates)
local names, last = {unpack(ARGV, 3)}, ''
if ARGV[2] == 'all' then
  local limit = tonumber(ARGV[4])
  names = call('ZRANGEBYLEX', P .. 'gates', ARGV[3] == '' and '-' or '(' .. ARGV[3], '+', 'LIMIT', 0, limit)
  if #names == limit then last = names[#names] end
end
local answer = {last}
for _, name in ipairs(names) do
  local f = call('HMGET', P .. 'gate:' .. name, 'c', 'rc', 'rp', 'p', 'pr', 'pw', 'ps', 'pu', 'lim')
  -- one that was only ever paused stays known when it is resumed
  if f[9] or f[4] or call('ZSCORE', P .. 'gates', name) then
    local s = gate_state(name)
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = name, f[1] or '', f[2] or '', f[3] or ''
    answer[n + 5], answer[n + 6], answer[n + 7] = paused(s) and '1' or '', f[5] or '', f[6] or ''
    answer[n + 8], answer[n + 9] = f[7] or '', f[8] or ''
    answer[n + 10], answer[n + 11] = call('HGET', P .. 'used', name) or '0', s.rc and s.granted or 0
  end
end
return answer
