-- Where tasks are found. A task with a live lease stands in none of the turn and decision indexes, save for its
-- deadline: when the lease ends, `leases` puts it back into them. An entry is a hint, and the record decides.
--
-- any            by time       what needs a decision of anybody: d (deadline), l (lease ended), g (grace ended), then the id
-- own:HANDLER    by time       what needs a decision of who has the handler
-- delayed:HANDLER by time      what waits for its time to be submitted
-- leases         by end        who holds a lease
-- wait:PRIORITY  by time due   what is ready to be submitted; with the hashes `queued` and `ready`
-- submitting     by time       what is SUBMITTING
-- fin:STATUS     by end        what has ended
-- ext            external id   the ids of its tasks
-- dedup          tenant, key   the id of who holds the key
local SWEEP = 200
local GRACE = 60000
local counts = {}

local function count(hash, field, change)
  local of = counts[hash]
  if not of then
    of = {}
    counts[hash] = of
  end
  of[field] = (of[field] or 0) + change
end

local function free(H) return H.til <= now end

local function query_member(H) return string.format('%014.0f', math.max(H.due, H.til)) .. H.id end

local function enter_ready(H)
  local L = lane_of(H.sl)
  enter_lane(L, H.rank .. H.id)
  if call('ZADD', P .. 'wait:' .. H.prio, H.due, H.id) == 1 then
    count('queued', H.prio, 1)
    count('ready', L.h, 1)
  end
end

local function leave_waiting(H, L)
  if call('ZREM', P .. 'wait:' .. H.prio, H.id) == 1 then
    count('queued', H.prio, -1)
    count('ready', L.h, -1)
  end
end

local function leave_queue(H)
  local L = lane_of(H.sl)
  if not leave_lane(L, H.rank .. H.id) then call('ZREM', P .. 'delayed:' .. L.h, H.id) end
  leave_waiting(H, L)
end

local function needs_decision(H) return H.til > 0 or H.flag > 0 or H.st == SUBMITTING end

local function enter_decisions(H)
  if not needs_decision(H) then return end
  local since = H.til > 0 and H.til or H.created
  if H.til > 0 and since >= H.dead then call('ZADD', P .. 'any', since, 'l' .. H.id) end
  local flagged = (H.st == SUBMITTED or H.st == RUNNING) and H.flag > 0
  if H.st == SUBMITTING and H.started == 0 then
    call('ZADD', P .. 'any', since, 'l' .. H.id)
  elseif H.st == SUBMITTING or flagged then
    if flagged then since = math.max(since, H.flag) end
    local h = lane_of(H.sl).h
    call('ZADD', P .. 'own:' .. h, since, H.id)
    call('ZADD', P .. 'any', since + GRACE, 'g' .. H.id)
    if since <= now then ready_for[h] = true else news[h] = true end
  end
end

-- Make a task found where it belongs as it is now; doing it twice is doing it once.
local function enter(H)
  if H.st >= FIRST_END then
    call('ZADD', P .. 'fin:' .. H.st, H.fin > 0 and H.fin or H.created, H.id)
    return
  end
  if not free(H) then
    call('ZADD', P .. 'leases', H.til, H.id)
    return
  end
  if H.st == PENDING and H.til == 0 then
    if H.due <= now then
      enter_ready(H)
    else
      local h = lane_of(H.sl).h
      call('ZADD', P .. 'delayed:' .. h, H.due, H.id)
      news[h] = true
    end
  elseif (H.st == SUBMITTED or H.st == RUNNING) and H.flag == 0 then
    enter_lane(lane_of(H.ql), query_member(H))
  end
  enter_decisions(H)
end

-- Take a task out of where `enter` has put it, if it has.
local function leave(H)
  if H.st >= FIRST_END then
    call('ZREM', P .. 'fin:' .. H.st, H.id)
    return
  end
  if H.til > 0 then call('ZREM', P .. 'leases', H.id) end
  if not free(H) then return end
  if H.st == PENDING and H.til == 0 then
    leave_queue(H)
  elseif (H.st == SUBMITTED or H.st == RUNNING) and H.flag == 0 then
    leave_lane(lane_of(H.ql), query_member(H))
  end
  if needs_decision(H) then
    call('ZREM', P .. 'any', 'l' .. H.id, 'g' .. H.id)
    call('ZREM', P .. 'own:' .. lane_of(H.sl).h, H.id)
  end
end

-- Let what time has done be done: delayed tasks become ready, and ended leases give their tasks back. Tell whether
-- there is more of it than one step deals with.
local function catch_up(handlers)
  local behind = false
  for _, handler in ipairs(handlers) do
    local due = call('ZRANGEBYSCORE', P .. 'delayed:' .. handler, '-inf', now, 'LIMIT', 0, SWEEP)
    for _, id in ipairs(due) do
      call('ZREM', P .. 'delayed:' .. handler, id)
      local H = load(id)
      if H and H.st == PENDING and H.til == 0 then enter_ready(H) end
    end
    behind = behind or #due == SWEEP
  end
  local ended = call('ZRANGEBYSCORE', P .. 'leases', '-inf', now, 'LIMIT', 0, SWEEP)
  for _, id in ipairs(ended) do
    call('ZREM', P .. 'leases', id)
    local H = load(id)
    if H and H.til > 0 then enter(H) end
  end
  return behind or #ended == SWEEP
end

-- Put what was gathered into the keys, and wake who waits for it; the last thing that a step does.
local function flush()
  flush_lanes()
  flush_gates()
  for hash, of in pairs(counts) do
    for field, change in pairs(of) do
      if change ~= 0 and call('HINCRBY', P .. hash, field, change) == 0 then call('HDEL', P .. hash, field) end
    end
  end
  for handler in pairs(ready_for) do
    news[handler] = nil
    call('PUBLISH', P .. 'news', '!' .. handler)
  end
  for handler in pairs(news) do call('PUBLISH', P .. 'news', '+' .. handler) end
end
