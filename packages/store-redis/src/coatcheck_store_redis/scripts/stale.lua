-- Find tasks that need a decision rather than a turn; who decides writes them as claimed (S6).
-- shared: moment records gates lanes index
--
-- KEYS     the namespace's prefix
-- ARGV     clock, limit, handler, ...
-- returns  {now, 1 if there may be more, id, record, document, ...}, the oldest need first
-- time     O(limit log N)
local limit = tonumber(ARGV[2])
local handlers = {unpack(ARGV, 3)}
for _, handler in ipairs(handlers) do
  local seen = tonumber(call('HGET', P .. 'seen', handler) or '0')
  if now - seen >= 5000 or seen > now then call('HSET', P .. 'seen', handler, now) end
end
local behind = catch_up(handlers)
local found, at = {}, {}
local function look(key, prefixed)
  local due = call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
  behind = behind or #due == 2 * limit
  for i = 1, #due, 2 do
    local id = prefixed and string.sub(due[i], 2) or due[i]
    local H = load(id)
    if not H or H.st >= FIRST_END or not free(H) then
      call('ZREM', key, due[i]) -- its lease, when it ends, puts it back
    elseif not at[id] then
      at[id] = tonumber(due[i + 1])
      found[#found + 1] = id
    else
      at[id] = math.min(at[id], tonumber(due[i + 1]))
    end
  end
end
look(P .. 'any', true)
for _, handler in ipairs(handlers) do look(P .. 'own:' .. handler, false) end
table.sort(found, function(a, b)
  if at[a] ~= at[b] then return at[a] < at[b] end
  return before(string.rep('0', 14) .. a, string.rep('0', 14) .. b, 'd')
end)
local answer = {now, behind and 1 or 0}
for n = 1, math.min(limit, #found) do
  answer[3 * n], answer[3 * n + 1], answer[3 * n + 2] = found[n], call('GET', P .. 't:' .. found[n]), document(found[n])
end
flush()
return answer
