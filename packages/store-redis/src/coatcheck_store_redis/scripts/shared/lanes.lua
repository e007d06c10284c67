-- Lanes: how tasks wait for their turns, so that a claim finds them in order, past closed gates, at a flat cost.
--
-- A lane is a handler and an exact set of gates ('s', turns to be submitted), or a handler and a query gate ('d', turns
-- to be queried). Its tasks wait in a sorted set by rank and id. A lane in which tasks wait is listed once, under its
-- head, the lowest rank in it: open, or parked under a gate that kept it from being served. A claim merges the open
-- lanes by their heads, parks those that it finds blocked, and never looks at parked ones, however many there are. What
-- brings a parked lane back is an entry in `wake`: from then on, the gate may have room for what it parks.
local RANKED = {s = 37, d = 14} -- how many characters of a member are its rank; the rest is the id
local lanes, refs = {}, {}
local ready_for, news = {}, {} -- handlers for which there may be work now, and those for which it may come sooner

local function lane_of(lid)
  local L = lanes[lid]
  if not L then
    local f = call('HMGET', P .. 'lane:' .. lid, 'k', 'h', 'g', 'at', 'pg', 'hd', 'nm')
    if not f[1] then return error('lane ' .. lid .. ' is missing') end
    L = {id = lid, k = f[1], h = f[2], gates = cjson.decode(f[3]), at = f[4] or '', pg = f[5], hd = f[6], nm = f[7]}
    lanes[lid] = L
  end
  return L
end

-- Return the number of the lane that is called so; it is made if there is none.
local function lane_named(name, kind, handler, gates)
  local lid = call('HGET', P .. 'lanes', name)
  if not lid then
    lid = call('INCR', P .. 'lanes#')
    call('HSET', P .. 'lanes', name, lid)
    call('HSET', P .. 'lane:' .. lid, 'k', kind, 'h', handler, 'g', gates, 'nm', name, 'n', 0)
  end
  return tonumber(lid)
end

-- Tell whether a member of a lane, or a head, goes before another; not by `<`, which asks the server's locale.
local function before(a, b, kind)
  local n = RANKED[kind]
  local x, y = string.sub(a, 1, n), string.sub(b, 1, n)
  if x ~= y then return x < y end
  for i = n + 1, math.min(#a, #b) do
    local p, q = string.byte(a, i), string.byte(b, i)
    if p ~= q then return p < q end
  end
  return #a < #b
end

local function park_key(kind, gate, handler) return P .. 'park:' .. kind .. ':' .. #gate .. ':' .. gate .. ':' .. handler end

-- List a lane elsewhere: at 'o' open, 'p' parked under a gate, '' nowhere.
local function relist(L, at, gate, head)
  if L.at == 'o' then
    call('ZREM', P .. 'open:' .. L.k .. ':' .. L.h, L.hd .. '\0' .. L.id)
  elseif L.at == 'p' then
    local key = park_key(L.k, L.pg, L.h)
    call('ZREM', key, L.hd .. '\0' .. L.id)
    if call('EXISTS', key) == 0 then
      call('SREM', P .. 'parkh:' .. L.k .. ':' .. L.pg, L.h)
      call('ZREM', P .. 'wake:' .. L.k .. ':' .. L.h, L.pg)
    end
  end
  L.at, L.pg, L.hd = at, gate, head
  if at == '' then
    call('HDEL', P .. 'lane:' .. L.id, 'at', 'pg', 'hd')
    return
  end
  call('HSET', P .. 'lane:' .. L.id, 'at', at, 'pg', gate or '', 'hd', head)
  if at == 'o' then
    call('ZADD', P .. 'open:' .. L.k .. ':' .. L.h, 0, head .. '\0' .. L.id)
  else
    call('ZADD', park_key(L.k, gate, L.h), 0, head .. '\0' .. L.id)
    call('SADD', P .. 'parkh:' .. L.k .. ':' .. gate, L.h)
  end
end

-- Let a task wait in a lane; entering twice is entering once.
local function enter_lane(L, member)
  call('ZADD', P .. 'q:' .. L.id, 0, member)
  if L.at == '' then
    relist(L, 'o', nil, member)
  elseif before(member, L.hd, L.k) then
    relist(L, L.at, L.pg, member)
  end
  if L.at == 'o' then
    local at = L.k == 's' and now or tonumber(string.sub(member, 1, 14))
    if at <= now then ready_for[L.h] = true else news[L.h] = true end
  end
end

-- Take a task out of its lane; tell whether it was there.
local function leave_lane(L, member)
  if call('ZREM', P .. 'q:' .. L.id, member) == 0 then return false end
  if L.at ~= '' and member == L.hd then
    local first = call('ZRANGE', P .. 'q:' .. L.id, 0, 0)[1]
    if first then relist(L, L.at, L.pg, first) else relist(L, '', nil, nil) end
  end
  return true
end

-- See to it that what the gate parks is looked at when the gate can have room.
local function look_over(kind, gate)
  local handlers = call('SMEMBERS', P .. 'parkh:' .. kind .. ':' .. gate)
  if #handlers == 0 then return end
  local at = opens_at(gate_state(gate), kind == 's')
  if not at then return end
  for _, handler in ipairs(handlers) do
    call('ZADD', P .. 'wake:' .. kind .. ':' .. handler, at, gate)
    if at <= now then ready_for[handler] = true else news[handler] = true end
  end
end

-- Open lanes of a handler under gates that may have got room: of each gate the first `most`. Tell if there are more.
local function wake(kind, handler, most, budget)
  local key, done = P .. 'wake:' .. kind .. ':' .. handler, 0
  local due = call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, budget)
  for _, gate in ipairs(due) do
    if done >= budget then return true end
    call('ZREM', key, gate)
    local room = math.min(room_of(gate_state(gate), kind == 's'), most)
    if room > 0 then
      local parked = call('ZRANGE', park_key(kind, gate, handler), 0, room - 1)
      for _, listed in ipairs(parked) do
        local head, lid = string.match(listed, '^(.*)%z(%d+)$')
        relist(lane_of(tonumber(lid)), 'o', nil, head)
      end
      done = done + #parked
    end
    look_over(kind, gate)
    done = done + 1
  end
  return #due == budget
end

-- Count how many tasks are of a lane; one of which there are none is forgotten by the end of the step.
local function refer(lid, change) refs[lid] = (refs[lid] or 0) + change end

local function flush_lanes()
  for gate in pairs(eased) do
    look_over('s', gate)
    look_over('d', gate)
  end
  for lid, change in pairs(refs) do
    if change ~= 0 and call('HINCRBY', P .. 'lane:' .. lid, 'n', change) <= 0 then
      local L = lane_of(lid)
      relist(L, '', nil, nil)
      call('DEL', P .. 'lane:' .. lid, P .. 'q:' .. lid)
      call('HDEL', P .. 'lanes', L.nm)
    end
  end
end
