-- Write what tasks have become, each if it is still as it was when that was computed (S7, S9, S10, S18, S19).
-- shared: moment records gates lanes index
--
-- KEYS     the namespace's prefix
-- ARGV     clock, for each task 20: id, revision, nonce or '' (its lease must be live), status, version, token, due,
--          deadline, finished or '', flagged or '', slots (1 or ''), end of the lease or '', nonce, granted or '',
--          started or '', external id (escaped) or '', grant to take back or '', its gates ('s' or 'd'),
--          nudge (1: a remembered one is applied already), document
-- returns  {now, for each: its revision now; 0 if it was changed meanwhile or the lease has ended; -1 if a nudge is
--          remembered for the external id, and has to be applied first}
-- time     O(tasks log N)
local MEMORY = 300000 -- how long a nudge is remembered
local answer = {now}

local function ext_ids(ext)
  local value = call('HGET', P .. 'ext', ext)
  return value and cmsgpack.unpack(value) or {}
end
local function leave_ext(H)
  if H.ext == '' then return end
  local kept = {}
  for _, id in ipairs(ext_ids(H.ext)) do
    if id ~= H.id then kept[#kept + 1] = id end
  end
  if #kept > 0 then call('HSET', P .. 'ext', H.ext, cmsgpack.pack(kept)) else call('HDEL', P .. 'ext', H.ext) end
end
local function enter_ext(H)
  if H.ext == '' then return end
  local ids = ext_ids(H.ext)
  ids[#ids + 1] = H.id
  call('HSET', P .. 'ext', H.ext, cmsgpack.pack(ids))
end

local function change_status(H, before_st)
  local h = lane_of(H.sl).h
  count('count', h .. '\0' .. before_st, -1)
  count('count', h .. '\0' .. H.st, 1)
  if before_st == SUBMITTING then
    call('ZREM', P .. 'submitting', H.id)
  elseif H.st == SUBMITTING then
    call('ZADD', P .. 'submitting', now, H.id)
  end
  if H.st >= FIRST_END and before_st < FIRST_END then
    call('ZREM', P .. 'any', 'd' .. H.id)
  elseif before_st >= FIRST_END and H.st < FIRST_END then
    call('ZADD', P .. 'any', H.dead, 'd' .. H.id)
  end
  if FREES_KEY[H.st] and H.dk ~= '' and call('HGET', P .. 'dedup', H.dk) == H.id then
    call('HDEL', P .. 'dedup', H.dk)
  end
end

for i = 2, #ARGV, 20 do
  local id, H, said = ARGV[i], load(ARGV[i]), 0
  local as_read = H and H.rev == tonumber(ARGV[i + 1])
  local nonce = ARGV[i + 2]
  local held = nonce == '' or (H and H.nonce == nonce and H.til > now)
  if as_read and held then
    local ext, nudged = ARGV[i + 15], ARGV[i + 18] == '1'
    if ext ~= '' and ext ~= H.ext then
      local L = lane_of(H.sl)
      local name = L.h .. '\0' .. ext
      local at = tonumber(call('ZSCORE', P .. 'nudges', name) or '')
      if at and now - at <= MEMORY and not nudged then said = -1 end
      if at and said == 0 then call('ZREM', P .. 'nudges', name) end
    end
    if said == 0 then
      leave(H)
      local st, dead, had_slots = H.st, H.dead, H.slots
      if ARGV[i + 16] ~= '' then
        take_back(lane_of(ARGV[i + 17] == 's' and H.sl or H.ql).gates, tonumber(ARGV[i + 16]))
      end
      if ext ~= H.ext then
        leave_ext(H)
        H.ext = ext
        enter_ext(H)
      end
      H.base, H.log = 'T', ''
      H.st, H.ver, H.tok = tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5])
      H.due, H.dead, H.fin = tonumber(ARGV[i + 6]), tonumber(ARGV[i + 7]), tonumber(ARGV[i + 8]) or 0
      H.flag, H.slots, H.til = tonumber(ARGV[i + 9]) or 0, ARGV[i + 10] == '1', tonumber(ARGV[i + 11]) or 0
      H.nonce, H.granted, H.started = ARGV[i + 12], tonumber(ARGV[i + 13]) or 0, tonumber(ARGV[i + 14]) or 0
      if st ~= H.st then change_status(H, st) end
      if H.st < FIRST_END and (dead ~= H.dead or (H.dead <= now and free(H))) then
        call('ZADD', P .. 'any', H.dead, 'd' .. id)
      end
      if had_slots and not H.slots then release(lane_of(H.sl).gates) end
      save(H)
      call('SET', P .. 'd:' .. id, ARGV[i + 19])
      enter(H)
      said = H.rev
    end
  end
  answer[#answer + 1] = said
end
flush()
return answer
