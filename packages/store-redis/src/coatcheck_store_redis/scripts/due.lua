-- Tell how many queries are due in some query lanes, and since when the first is (S13).
-- shared: moment
--
-- KEYS     the namespace's prefix
-- ARGV     clock, cursor of the lanes or '0'
-- returns  {cursor to go on with, or '0', handler, due queries, first due or '', ...} for each query lane met
-- time     O(lanes looked at, about 200)
local found = call('HSCAN', P .. 'lanes', ARGV[2], 'COUNT', 200)
local answer = {found[1]}
local last = '[' .. string.format('%014.0f', now) .. '\255'
for i = 2, #found[2], 2 do
  local f = call('HMGET', P .. 'lane:' .. found[2][i], 'k', 'h')
  if f[1] == 'd' then
    local key, n = P .. 'q:' .. found[2][i], #answer
    local first = call('ZRANGE', key, 0, 0)[1]
    answer[n + 1], answer[n + 2] = f[2], call('ZLEXCOUNT', key, '-', last)
    answer[n + 3] = first and string.sub(first, 1, 14) or ''
  end
end
return answer
