-- Change a gate, and remember who did, and why (S11).
-- shared: moment made records gates lanes index
--
-- KEYS     the namespace's prefix
-- ARGV     clock, place, mark and memory (milliseconds) of the call, gate, its name as JSON, who and reason as JSON, how
--          many changes are remembered at most; then 'set', concurrency or '', rate's count or '', rate's window
--          (milliseconds) or '', only if new (1 or ''); or 'pause', duration (milliseconds) or ''; or 'resume'; or
--          'delete'
-- returns  1 if it changed anything
-- time     O(handlers that the gate parks, log N)
if made_before() then return 1 end
local name, label, who, reason, most, act = unpack(ARGV, 5, 10)
local key = P .. 'gate:' .. name
local s = gate_state(name)
local action -- what is remembered of it

if act == 'set' then
  local f = call('HMGET', key, 'lim', 'c', 'rc', 'rp')
  if f[1] and (ARGV[14] == '1' or (f[2] == ARGV[11] and f[3] == ARGV[12] and f[4] == ARGV[13])) then return 0 end
  action = 'LIMITED'
  local rated = s.rc
  call('HSET', key, 'lim', 1, 'c', ARGV[11], 'rc', ARGV[12], 'rp', ARGV[13])
  call('ZADD', P .. 'gates', 0, name)
  s.c, s.rc, s.rp = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
  if s.c then s.used = tonumber(call('HGET', P .. 'used', name) or '0') end
  if s.rc then
    if not rated then
      read_log(s)
      s.since, s.logged = now, true
    end
    prune(s)
  end
elseif act == 'pause' then
  local till = ARGV[11] ~= '' and now + ARGV[11] or nil
  if paused(s) and till and (not s.pu or s.pu > till) then return 0 end -- one that lasts longer stands
  action = 'PAUSED'
  s.paused, s.pu = true, till
  call('HSET', key, 'p', 1, 'pr', reason, 'pw', who, 'ps', now, 'pu', till or '')
  call('ZADD', P .. 'gates', 0, name)
elseif act == 'resume' then
  if not s.paused then return 0 end
  if paused(s) then action = 'RESUMED' end -- one that was over already is only tidied up
  s.paused = false
  call('HDEL', key, 'p', 'pr', 'pw', 'ps', 'pu')
else
  if call('ZREM', P .. 'gates', name) == 1 then action = 'DELETED' end
  call('DEL', key)
  s.c, s.rc, s.rp, s.paused, s.pu = nil, nil, nil, false, nil
end

-- Return the gate as it is now, as `coatcheck.codec.encode_gate` would. Numbers stay the texts that they are.
local function described()
  local f = call('HMGET', key, 'c', 'rc', 'rp', 'pr', 'pw', 'ps', 'pu')
  local function given(text) return text and text ~= '' and text or 'null' end
  local parts = {'{"name":' .. label .. ',"concurrency":' .. given(f[1])}
  if given(f[2]) ~= 'null' then parts[2] = ',"rate":[' .. f[2] .. ',' .. f[3] .. ']' end
  if f[6] then
    parts[#parts + 1] = ',"pause":{"reason":' .. f[4] .. ',"who":' .. f[5] .. ',"since":' .. f[6] .. ',"until":' ..
      given(f[7]) .. '}'
  end
  return table.concat(parts) .. '}'
end

-- Remember the change, as `coatcheck.gates.recorded` says: what repeats the last one takes its place, and is counted.
if action then
  local log, times = P .. 'hist:' .. name, 1
  local head = '{"action":"' .. action .. '"' .. (who ~= 'null' and ',"who":' .. who or '') ..
    (reason ~= 'null' and ',"reason":' .. reason or '') .. ',"at":'
  local last = call('LINDEX', log, -1)
  if last and string.sub(last, 1, #head) == head then
    times = 1 + tonumber(string.match(last, ',"times":(%d+)}$') or '1')
    call('RPOP', log)
  end
  local entry = head .. string.format('%.0f', now) .. ',"gate":' .. described()
  if times > 1 then entry = entry .. ',"times":' .. string.format('%.0f', times) end
  call('RPUSH', log, entry .. '}')
  call('LTRIM', log, -most, -1)
end
eased[name] = true
remember_made('')
flush()
return 1
