-- Change a gate (S11).
-- shared: moment records gates lanes index
--
-- KEYS     the namespace's prefix
-- ARGV     clock, gate, 'set', concurrency or '', rate's count or '', rate's window (milliseconds) or '', only if new
--          (1 or ''), limits as JSON; or 'pause', reason, who as JSON, duration (milliseconds) or ''; or 'resume'; or
--          'delete'
-- returns  1 if it changed anything
-- time     O(handlers that the gate parks, log N)
local name, act = ARGV[2], ARGV[3]
local key = P .. 'gate:' .. name
local s = gate_state(name)
if act == 'set' then
  if ARGV[7] == '1' and call('HGET', key, 'lim') then return 0 end
  local rated = s.rc
  call('HSET', key, 'lim', 1, 'c', ARGV[4], 'rc', ARGV[5], 'rp', ARGV[6])
  call('ZADD', P .. 'gates', 0, name)
  s.c, s.rc, s.rp = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
  if s.c then s.used = tonumber(call('HGET', P .. 'used', name) or '0') end
  if s.rc then
    if not rated then
      read_log(s)
      s.since, s.logged = now, true
    end
    prune(s)
  end
elseif act == 'pause' then
  local till = ARGV[6] ~= '' and now + ARGV[6] or nil
  if paused(s) and till and (not s.pu or s.pu > till) then return 0 end -- one that lasts longer stands
  s.paused, s.pu = true, till
  call('HSET', key, 'p', 1, 'pr', ARGV[4], 'pw', ARGV[5], 'ps', now, 'pu', till or '')
  call('ZADD', P .. 'gates', 0, name)
elseif act == 'resume' then
  if not s.paused then return 0 end
  s.paused = false
  call('HDEL', key, 'p', 'pr', 'pw', 'ps', 'pu')
else
  call('DEL', key)
  call('ZREM', P .. 'gates', name)
  s.c, s.rc, s.rp, s.paused, s.pu = nil, nil, nil, false, nil
end
eased[name] = true
flush()
return 1
