-- Add tasks, all or none (S2).
-- shared: moment records gates lanes index
--
-- KEYS     the namespace's prefix
-- ARGV     clock, rank mode, mark of the call, number of lanes L, number of drafts D;
--          for each lane: name, kind, handler, gates as JSON;
--          for each draft: id, place of its submit lane, of its query lane, expected, rank's band (9 hex digits),
--          credit's high and low 32 bits, priority, delay, not before or '', timeout (milliseconds), dedup field or '',
--          document; `expected` is '' for a draft to add, else 'i' (the id is known to exist) or 'd' and an id (the
--          dedup key is known to be held by it)
-- returns  {0, now} if all were added, or were as expected;
--          {1, mode} if the store ranks by another mode;
--          {2, now, place, 'i' or 'd', id, record, document, ...} for drafts that are not as expected: nothing was added. The
--          record is of the task with the id, or of the holder of the key; '' if there is none any more
-- time     O(D log N)
local mode, mark, L, D = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local FIRST = 6 + 4 * L
local WIDTH = 13
local known = call('GET', P .. 'mode')
if known and known ~= mode then return {1, known} end

local surprises = {2, now}
local function surprise(place, kind, id)
  local n = #surprises
  local value = call('GET', P .. 't:' .. id)
  surprises[n + 1], surprises[n + 2], surprises[n + 3] = place, kind, id
  surprises[n + 4], surprises[n + 5] = value or '', value and document(id) or ''
end
for d = 0, D - 1 do
  local i = FIRST + WIDTH * d
  local id, expected, dk = ARGV[i], ARGV[i + 3], ARGV[i + 11]
  local there = call('EXISTS', P .. 't:' .. id) == 1
  if there ~= (expected == 'i') then
    surprise(d, 'i', id)
  elseif dk ~= '' and not there then
    local holder = call('HGET', P .. 'dedup', dk)
    if (holder and 'd' .. holder or '') ~= expected then surprise(d, 'd', holder or '') end
  end
end
if #surprises > 2 then return surprises end

if not known then call('SET', P .. 'mode', mode) end
local lids = {}
for l = 0, L - 1 do
  local i = 6 + 4 * l
  lids[l] = lane_named(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
end
local function limbs(n) return math.floor(n / 4294967296), n % 4294967296 end
for d = 0, D - 1 do
  local i = FIRST + WIDTH * d
  if ARGV[i + 3] == '' then
    local id, sl, ql, dk = ARGV[i], lids[tonumber(ARGV[i + 1])], lids[tonumber(ARGV[i + 2])], ARGV[i + 11]
    local sched = math.max(now + ARGV[i + 8], tonumber(ARGV[i + 9]) or 0)
    local dead = now + ARGV[i + 10]
    -- when it counts as waiting since: 64 bits, in two halves, since a credit may be larger than a number holds
    local high, low = limbs(sched)
    high, low = high - ARGV[i + 5], low - ARGV[i + 6]
    if low < 0 then high, low = high - 1, low + 4294967296 end
    local rank = ARGV[i + 4] .. string.format('%08x%08x%012x', high + 2147483648, low, now)
    local H = {id = id, base = 'D', st = PENDING, rev = 0, ver = 0, tok = 0, sl = sl, ql = ql, prio = tonumber(ARGV[i + 7]),
      created = now, sched = sched, due = math.min(sched, dead), dead = dead, fin = 0, flag = 0, til = 0, granted = 0,
      started = 0, slots = false, rank = rank, nonce = mark, dk = dk, ext = '', log = '', more = ''}
    save(H)
    call('SET', P .. 'd:' .. id, ARGV[i + 12])
    call('ZADD', P .. 'ids', 0, id)
    call('ZADD', P .. 'any', dead, 'd' .. id)
    if dk ~= '' then call('HSET', P .. 'dedup', dk, id) end
    count('count', lane_of(sl).h .. '\0' .. PENDING, 1)
    refer(sl, 1)
    refer(ql, 1)
    enter(H)
  end
end
flush()
return {0, now}
