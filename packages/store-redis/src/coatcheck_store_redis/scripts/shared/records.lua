-- Records: a task's fields that the steps here look at, in a key of their own, `t:ID`; its document is in `d:ID`, and
-- they don't look into it. The fields are those of `records.py`, which says what they mean: 83 bytes of numbers, the
-- rank, and texts with their lengths. 0 stands for no time. What a newer version adds is in `more`, and kept.
local PENDING, SUBMITTING, SUBMITTED, RUNNING, FIRST_END = 0, 1, 2, 3, 4
local FREES_KEY = {[5] = true, [6] = true} -- FAILED and CANCELED free the dedup key
local FIXED = '>c1BI4I4I4I4I4i4I8I8I8I8I8I8I8I8I8Bc37'
local TEXTS = 'I4c0I4c0I4c0I4c0I4c0'
local SHAPE = FIXED .. TEXTS
local SHORTEST = 156

local function unpacked(id, value)
  local base, st, rev, ver, tok, sl, ql, prio, created, sched, due, dead, fin, flag, til, granted, started, slots, rank,
    nonce, dk, ext, log, more = struct.unpack(SHAPE, value)
  return {id = id, base = base, st = st, rev = rev, ver = ver, tok = tok, sl = sl, ql = ql, prio = prio,
    created = created, sched = sched, due = due, dead = dead, fin = fin, flag = flag, til = til, granted = granted,
    started = started, slots = slots == 1, rank = rank, nonce = nonce, dk = dk, ext = ext, log = log, more = more}
end

-- Return a record's fields; nil if they cannot be read.
local function parse(id, value)
  local base = string.byte(value)
  if (base ~= 68 and base ~= 84) or #value < SHORTEST then return nil end
  local fine, H = pcall(unpacked, id, value)
  return fine and H or nil
end

-- Set a row aside that cannot be read.
local function aside(id, reason)
  if call('ZADD', P .. 'aside', 0, id) == 1 then
    call('HSET', P .. 'asidewhy', id, string.format('%.0f', now) .. ' ' .. reason)
  end
end

-- Return a task's record; nil if there is none, or none that can be read.
local function load(id)
  local value = call('GET', P .. 't:' .. id)
  if not value then return nil end
  local H = parse(id, value)
  if not H then aside(id, 'its record cannot be read') end
  return H
end

local function render(H)
  local nonce, dk, ext, log, more = H.nonce, H.dk, H.ext, H.log, H.more
  return struct.pack(SHAPE, H.base, H.st, H.rev, H.ver, H.tok, H.sl, H.ql, H.prio, H.created, H.sched, H.due, H.dead,
    H.fin, H.flag, H.til, H.granted, H.started, H.slots and 1 or 0, H.rank, #nonce, nonce, #dk, dk, #ext, ext, #log, log,
    #more, more)
end

-- Write a record, and return it as it stands.
local function save(H)
  H.rev = H.rev + 1
  local value = render(H)
  call('SET', P .. 't:' .. H.id, value)
  return value
end

local function document(id) return call('GET', P .. 'd:' .. id) or '' end
