-- Tell from when on there may be work for some handlers (S12).
-- shared: moment
--
-- KEYS     the namespace's prefix
-- ARGV     clock, since when the caller waits or '' (now), handler, ...
-- returns  {now, the time, which may be now or before, or '' if none is known}; what needs a decision counts if it came to
--          need it after `since`
-- time     O(handlers log N)
local since, first = tonumber(ARGV[2]) or now, nil
local function at(time)
  time = tonumber(time or '')
  if time and (not first or time < first) then first = time end
end
at(call('ZRANGE', P .. 'leases', 0, 0, 'WITHSCORES')[2])
at(call('ZRANGEBYSCORE', P .. 'any', '(' .. string.format('%.0f', since), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
for i = 3, #ARGV do
  local handler = ARGV[i]
  if call('EXISTS', P .. 'open:s:' .. handler) == 1 then at(now) end
  local head = call('ZRANGE', P .. 'open:d:' .. handler, 0, 0)[1]
  if head then at(string.sub(head, 1, 14)) end
  at(call('ZRANGEBYSCORE', P .. 'own:' .. handler, '(' .. string.format('%.0f', since), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
  at(call('ZRANGE', P .. 'wake:s:' .. handler, 0, 0, 'WITHSCORES')[2])
  at(call('ZRANGE', P .. 'wake:d:' .. handler, 0, 0, 'WITHSCORES')[2])
  at(call('ZRANGE', P .. 'delayed:' .. handler, 0, 0, 'WITHSCORES')[2])
end
return {now, first or ''}
