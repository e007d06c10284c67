-- Find the tasks that the provider has under an id; remember the nudge if there are none (S10).
-- shared: moment records
--
-- KEYS     the namespace's prefix
-- ARGV     clock, external id (escaped), handler or '' (then nothing is remembered), most nudges, memory (milliseconds)
-- returns  {now, id, record, document, ...}
-- time     O(tasks of the id + log nudges)
local ext, handler, most, memory = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local answer = {now}
local value = call('HGET', P .. 'ext', ext)
for _, id in ipairs(value and cmsgpack.unpack(value) or {}) do
  local record = call('GET', P .. 't:' .. id)
  local H = record and parse(id, record)
  if H and (handler == '' or call('HGET', P .. 'lane:' .. H.sl, 'h') == handler) then
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3] = id, record, document(id)
  end
end
if #answer == 1 and handler ~= '' then
  call('ZADD', P .. 'nudges', now, handler .. '\0' .. ext)
  call('ZREMRANGEBYSCORE', P .. 'nudges', '-inf', '(' .. (now - memory))
  local over = call('ZCARD', P .. 'nudges') - most
  if over > 0 then call('ZREMRANGEBYRANK', P .. 'nudges', 0, over - 1) end
end
return answer
