-- Claim due tasks for submission or for querying, in rank order, behind open gates (S4, S5).
-- shared: moment records gates lanes index walk
--
-- KEYS     the namespace's prefix
-- ARGV     clock, kind ('s' submit, 'd' query), worker, nonce, lease (milliseconds), limit, handler, ...
-- returns  {now, 1 if it ended early, id, record, document, ...}; the records as they are now
-- time     O(limit + lanes met), each O(log N); at most 500 lanes and tasks that give nothing
local kind, worker, nonce, lease, limit = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local handlers = {unpack(ARGV, 7)}
for _, handler in ipairs(handlers) do
  local seen = tonumber(call('HGET', P .. 'seen', handler) or '0')
  if now - seen >= 5000 or seen > now then call('HSET', P .. 'seen', handler, now) end
end
local behind = catch_up(handlers)

local function accept_submission(member, L)
  local H = load(string.sub(member, RANKED.s + 1))
  if not H or H.st ~= PENDING or H.til > 0 then return nil end
  leave_waiting(H, L)
  return H.dead > now and H or nil
end
local function accept_query(member)
  local H = load(string.sub(member, RANKED.d + 1))
  if not H or not (H.st == SUBMITTED or H.st == RUNNING) or not free(H) or H.flag > 0 or H.due > now
    or H.dead <= now then
    return nil
  end
  return H
end
local granted, early
if kind == 's' then
  granted, early = walk('s', handlers, limit, nil, accept_submission)
else
  granted, early = walk('d', handlers, limit, string.format('%014.0f', now + 1), accept_query)
end

local answer = {now, (behind or early) and 1 or 0}
for n, turn in ipairs(granted) do
  local H, at = turn[1], turn[2]
  if kind == 's' then
    local h = lane_of(H.sl).h
    count('count', h .. '\0' .. H.st, -1)
    count('count', h .. '\0' .. SUBMITTING, 1)
    call('ZADD', P .. 'submitting', now, H.id)
    H.st, H.slots = SUBMITTING, true
  end
  H.ver, H.tok, H.til = H.ver + 1, H.tok + 1, now + lease
  -- a query that no rate has granted is started by its claim
  H.nonce, H.granted, H.started = nonce .. '-' .. n, at or 0, kind == 'd' and not at and now or 0
  local entry = table.concat({kind, H.nonce, H.tok, now, at or '', worker}, ' ')
  H.log = H.log == '' and entry or H.log .. '\30' .. entry
  call('ZADD', P .. 'leases', H.til, H.id)
  answer[3 * n], answer[3 * n + 1], answer[3 * n + 2] = H.id, save(H), document(H.id)
end
flush()
return answer
