-- Gates: how much room they have, what they grant, when they open.
--
-- A gate's slots are counted under its name whether it is defined or not, so that limits set later see them. A rate
-- keeps a log of when it granted how many; at `t` it may grant while the entries in (t - per, t] sum up to less than
-- the limit. A log's time never goes back, whatever the server's clock does.
local HUGE = 2 ^ 52
local ENTRIES = 64 -- about how many entries a log keeps; closer ones are merged towards the later time
local states, eased, used_changes = {}, {}, {}

local function prune(s)
  if not s.rc then return end
  local begin, kept, sum = s.at - s.rp, {}, 0
  for i = 1, #s.log, 2 do
    if s.log[i] > begin then
      kept[#kept + 1], kept[#kept + 2] = s.log[i], s.log[i + 1]
      sum = sum + s.log[i + 1]
    end
  end
  s.log, s.granted = kept, sum
end

local function read_log(s)
  local value = call('GET', P .. 'win:' .. s.name)
  s.since, s.at, s.log = 0, now, {}
  if value then
    local known = cmsgpack.unpack(value)
    s.since, s.at, s.log = known[1], math.max(now, known[2]), known[3]
  end
end

local function gate_state(name)
  local s = states[name]
  if s then return s end
  local f = call('HMGET', P .. 'gate:' .. name, 'c', 'rc', 'rp', 'p', 'pu')
  s = {name = name, c = tonumber(f[1] or ''), rc = tonumber(f[2] or ''), rp = tonumber(f[3] or ''), paused = f[4] == '1',
    pu = tonumber(f[5] or ''), used = 0, log = {}, granted = 0, since = 0, at = now}
  if s.c then s.used = tonumber(call('HGET', P .. 'used', name) or '0') end
  if s.rc then
    read_log(s)
    prune(s)
  end
  states[name] = s
  return s
end

local function paused(s) return s.paused and (not s.pu or now < s.pu) end

local function room_of(s, slots)
  if paused(s) then return 0 end
  local room = HUGE
  if slots and s.c then room = s.c - s.used end
  if s.rc then room = math.min(room, s.rc - s.granted) end
  return math.max(room, 0)
end

-- Return when it is worth looking again; nil if only a release or an operator opens it.
local function opens_at(s, slots)
  if room_of(s, slots) > 0 then return now end
  if paused(s) then return s.pu end
  if (slots and s.c and s.used >= s.c) or not s.rc then return nil end
  local left = s.granted
  for i = 1, #s.log, 2 do
    left = left - s.log[i + 1]
    if left < s.rc then return s.log[i] + s.rp end
  end
  return nil
end

local function count_used(name, change) used_changes[name] = (used_changes[name] or 0) + change end

-- Grant `count` turns at each of these gates, which have room; return when, if a rate is involved.
local function take(gates, count, slots)
  local at
  for _, s in ipairs(gates) do
    if s.rc then at = math.max(at or stamp, s.at, s.log[#s.log - 1] or 0) end
  end
  for _, s in ipairs(gates) do
    if slots then
      s.used = s.used + count
      count_used(s.name, count)
    end
    if s.rc then
      local log = s.log
      if log[#log - 1] == at then
        log[#log] = log[#log] + count
      else
        log[#log + 1], log[#log + 2] = at, count
      end
      if #log > 4 * ENTRIES then
        local merged = {}
        for i = 1, #log, 2 do
          local last = merged[#merged - 1]
          if last and math.floor(last * ENTRIES / s.rp) == math.floor(log[i] * ENTRIES / s.rp) then
            merged[#merged - 1], merged[#merged] = log[i], merged[#merged] + log[i + 1]
          else
            merged[#merged + 1], merged[#merged + 2] = log[i], log[i + 1]
          end
        end
        s.log = merged
      end
      s.granted, s.logged = s.granted + count, true
    end
  end
  return at
end

local function release(names)
  for _, name in ipairs(names) do
    local s = gate_state(name)
    s.used = s.used - 1
    count_used(name, -1)
    eased[name] = true
  end
end

-- Take back the rate grant that was given at `at`; one from before the window belongs to nobody any more.
local function take_back(names, at)
  for _, name in ipairs(names) do
    local s = gate_state(name)
    if s.rc and at >= s.since and at > s.at - s.rp then
      for i = 1, #s.log, 2 do
        if s.log[i] >= at then
          if s.log[i + 1] > 1 then
            s.log[i + 1] = s.log[i + 1] - 1
          else
            table.remove(s.log, i + 1)
            table.remove(s.log, i)
          end
          s.granted, s.logged, eased[name] = s.granted - 1, true, true
          break
        end
      end
    end
  end
end

local function flush_gates()
  for name, change in pairs(used_changes) do
    if change ~= 0 and call('HINCRBY', P .. 'used', name, change) == 0 then call('HDEL', P .. 'used', name) end
  end
  for name, s in pairs(states) do
    if s.logged then
      call('SET', P .. 'win:' .. name, cmsgpack.pack({s.since, s.at, s.log}),
        'PX', string.format('%d', math.max(2 * s.rp, 3600000)))
    end
  end
end
