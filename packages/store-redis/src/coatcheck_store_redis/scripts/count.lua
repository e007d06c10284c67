-- Count on tallies, all or none (S21).
-- shared: moment made
--
-- tally      name      its total, and when it is forgotten (milliseconds since 1970)
-- tallyends  by time   their names, by when they are forgotten
-- tallynames by name   their names
--
-- KEYS     the namespace's prefix
-- ARGV     clock, place, mark and memory (milliseconds) of the call; for each count: tally, amount, at most or '', raise
--          it to the clock (1 or ''), lifetime (milliseconds)
-- returns  {'', total before, total after, 1 if it was counted or else 0, ...}, as texts; or {place of the count, total
--          before} if that count would go beyond what is counted exactly: then none is made
-- time     O((counts + SWEEP) log tallies)
local before_now = made_before()
if before_now then return cmsgpack.unpack(before_now) end
local FIRST, WIDTH, SWEEP = 5, 5, 100
local MOST = 9007199254740991 -- up to here a number holds each integer; what is beyond never compares as less
local COUNTS = (#ARGV - FIRST + 1) / WIDTH
local tallies = {}

-- each step forgets more than it can make
for _, name in ipairs(call('ZRANGEBYSCORE', P .. 'tallyends', '-inf', now, 'LIMIT', 0, SWEEP + COUNTS)) do
  call('HDEL', P .. 'tally', name)
  call('ZREM', P .. 'tallyends', name)
  call('ZREM', P .. 'tallynames', name)
end

local function exact(number) return string.format('%.0f', number) end

local function tally(name)
  local t = tallies[name]
  if t then return t end
  local value = call('HGET', P .. 'tally', name)
  local total, ends = string.match(value or '', '^(%-?%d+) (%d+)')
  t = {total = tonumber(total or '0'), ends = tonumber(ends or '0'), fresh = not value}
  if t.ends <= now then t.total = 0 end
  tallies[name] = t
  return t
end

local answer, changed = {''}, false
for place = 0, COUNTS - 1 do
  local name, amount, most, clock, lifetime = unpack(ARGV, FIRST + WIDTH * place, FIRST + WIDTH * place + 4)
  local t = tally(name)
  local before = clock == '1' and math.max(t.total, now) or t.total
  local after = before + amount
  local counted = most == '' or after <= tonumber(most)
  if counted and math.abs(after) > MOST then return {exact(place), exact(before)} end
  if counted and tonumber(amount) ~= 0 then
    t.total, t.ends, t.changed, changed = after, math.max(t.ends, now + lifetime), true, true
  end
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = exact(before), exact(counted and after or before), counted and '1' or '0'
end
for name, t in pairs(tallies) do
  if t.changed then
    call('HSET', P .. 'tally', name, exact(t.total) .. ' ' .. exact(t.ends))
    call('ZADD', P .. 'tallyends', exact(t.ends), name)
    if t.fresh then call('ZADD', P .. 'tallynames', 0, name) end
  end
end
if changed then remember_made(cmsgpack.pack(answer)) end
return answer
