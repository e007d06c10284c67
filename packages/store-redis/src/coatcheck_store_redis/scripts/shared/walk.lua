-- The walk of one claim over the open lanes: who gets the next turns, in rank order, behind which gates.
local EFFORT = 500 -- how many lanes and tasks that give nothing one claim looks at before it says "again"

local function heap_push(heap, item, kind)
  local i = #heap + 1
  heap[i] = item
  while i > 1 do
    local up = math.floor(i / 2)
    if not before(item.head, heap[up].head, kind) then break end
    heap[i], i = heap[up], up
  end
  heap[i] = item
end

local function heap_pop(heap, kind)
  local top, last = heap[1], table.remove(heap)
  local n, i = #heap, 1
  if n == 0 then return top end
  while true do
    local down = 2 * i
    if down > n then break end
    if down < n and before(heap[down + 1].head, heap[down].head, kind) then down = down + 1 end
    if not before(heap[down].head, last.head, kind) then break end
    heap[i], i = heap[down], down
  end
  heap[i] = last
  return top
end

-- Grant turns to the first `limit` tasks of these handlers that open gates let through, calling `accept` with each
-- member, which returns its record, or nil if it is not to have a turn. Members from `horizon` on are left alone.
-- Returns what was granted, as pairs of a record and the time of its rate grant, and whether it ended early.
local function walk(kind, handlers, limit, horizon, accept)
  local slots, effort, behind = kind == 's', EFFORT + limit, false
  local granted, touched, heap, done = {}, {}, {}, {}

  local function head_of(W)
    local member = W.wait[W.pos]
    if not member and W.more then
      W.wait, W.pos = call('ZRANGEBYLEX', P .. 'q:' .. W.L.id, W.from, '+', 'LIMIT', 0, W.size), 1
      W.more = #W.wait == W.size
      W.from, W.size = '(' .. (W.wait[#W.wait] or ''), math.min(4 * W.size, 256)
      member = W.wait[1]
    end
    return member
  end

  local function take_up(lid)
    local L = lane_of(lid)
    local W = {L = L, gates = {}, wait = {}, pos = 1, more = true, from = '-', size = 4, gone = {}, served = false}
    for i, name in ipairs(L.gates) do
      touched[name] = true
      W.gates[i] = gate_state(name)
    end
    done[#done + 1] = W
    return W
  end

  local function room_in(W)
    local room = limit - #granted
    for _, s in ipairs(W.gates) do room = math.min(room, room_of(s, slots)) end
    return room
  end

  -- Bring a parked lane into the claim for each gate whose room a lane was brought for and has not used: without it,
  -- lanes that are blocked elsewhere, too, would keep back those that are parked behind them.
  local function replace(W)
    if W.served then return end
    effort = effort - 1
    for _, s in ipairs(W.gates) do
      local key = park_key(kind, s.name, W.L.h)
      while room_of(s, slots) > 0 do
        local listed = call('ZRANGE', key, 0, 0)[1]
        if not listed then break end
        call('ZREM', key, listed) -- at once, so that it comes but once; the end of the walk lists it again
        local other = take_up(tonumber(string.match(listed, '%z(%d+)$')))
        other.moved = true
        other.head = head_of(other)
        if other.head then
          heap_push(heap, other, kind)
          break
        end
      end
    end
  end

  local function put_back(W)
    W.head = head_of(W)
    if W.head then heap_push(heap, W, kind) else replace(W) end
  end

  local function park(W)
    local worst, latest
    for _, s in ipairs(W.gates) do
      local at = opens_at(s, slots) or HUGE
      if not worst or at > latest then worst, latest = s.name, at end
    end
    W.park = worst
  end

  local function serve(W, bound)
    local room = room_in(W)
    if room == 0 then
      park(W)
      replace(W)
      return
    end
    local got = {}
    while #got < room and W.head and (not bound or before(W.head, bound, kind)) do
      W.pos = W.pos + 1
      W.gone[#W.gone + 1] = W.head
      local H = accept(W.head, W.L)
      if H then
        got[#got + 1] = H
      else
        effort = effort - 1
        if effort <= 0 then break end
      end
      W.head = head_of(W)
    end
    if #got > 0 then
      W.served = true
      local at = take(W.gates, #got, slots)
      for _, H in ipairs(got) do granted[#granted + 1] = {H, at} end
    else
      replace(W)
    end
    put_back(W)
  end

  -- the open lanes of each handler, read ahead a little
  local open = {}
  for i, handler in ipairs(handlers) do
    behind = wake(kind, handler, limit, EFFORT) or behind
    open[i] = {key = P .. 'open:' .. kind .. ':' .. handler, from = '-', size = 4, list = {}, pos = 1, more = true}
  end

  local function first_of(O)
    local listed = O.list[O.pos]
    if not listed and O.more then
      O.list, O.pos = call('ZRANGEBYLEX', O.key, O.from, '+', 'LIMIT', 0, O.size), 1
      O.more = #O.list == O.size
      O.from, O.size = '(' .. (O.list[#O.list] or ''), math.min(4 * O.size, 256)
      listed = O.list[1]
    end
    return listed
  end

  local function coming()
    local found, from
    for _, O in ipairs(open) do
      local listed = first_of(O)
      if listed and (not found or before(listed, found, kind)) then found, from = listed, O end
    end
    return found, from
  end

  local listed, from = coming()
  while #granted < limit and effort > 0 do
    local top = heap[1] and heap[1].head
    if listed and (not top or before(listed, top, kind)) then
      if horizon and not before(listed, horizon, kind) then break end
      from.pos = from.pos + 1
      put_back(take_up(tonumber(string.match(listed, '%z(%d+)$'))))
      listed, from = coming()
    elseif not top or (horizon and not before(top, horizon, kind)) then
      break
    else
      local W = heap_pop(heap, kind)
      local bound = heap[1] and heap[1].head
      if listed and (not bound or before(listed, bound, kind)) then bound = listed end
      if horizon and (not bound or before(horizon, bound, kind)) then bound = horizon end
      serve(W, bound)
    end
  end
  for _, W in ipairs(done) do
    for i = 1, #W.gone, 500 do
      call('ZREM', P .. 'q:' .. W.L.id, unpack(W.gone, i, math.min(i + 499, #W.gone)))
    end
    local L = W.L
    if not W.head then
      relist(L, '', nil, nil)
    elseif W.park then
      relist(L, 'p', W.park, W.head)
    elseif W.moved or L.at ~= 'o' or L.hd ~= W.head then
      relist(L, 'o', nil, W.head)
    end
  end
  for name in pairs(touched) do look_over(kind, name) end
  return granted, behind or effort <= 0
end
