-- Tell how the store stands (S13).
-- shared: moment records gates lanes index
--
-- KEYS     the namespace's prefix
-- ARGV     clock
-- returns  {now, counts, queued, ready, first due by priority, seen, first claimed or '', rows set aside, 1 if more
--          tasks have become ready than one step deals with}, the first four and `seen` as flat lists
-- time     O(handlers + priorities)
local handlers, known = {}, {}
local tasks = call('HGETALL', P .. 'count')
for i = 1, #tasks, 2 do
  local handler = string.match(tasks[i], '^(.*)%z%d+$')
  if not known[handler] then
    known[handler] = true
    handlers[#handlers + 1] = handler
  end
end
local behind = catch_up(handlers)
flush()
local queued, firsts = call('HGETALL', P .. 'queued'), {}
for i = 1, #queued, 2 do
  firsts[i] = queued[i]
  firsts[i + 1] = call('ZRANGE', P .. 'wait:' .. queued[i], 0, 0, 'WITHSCORES')[2] or now
end
return {now, tasks, queued, call('HGETALL', P .. 'ready'), firsts, call('HGETALL', P .. 'seen'),
  call('ZRANGE', P .. 'submitting', 0, 0, 'WITHSCORES')[2] or '', call('ZCARD', P .. 'aside'), behind and 1 or 0}
