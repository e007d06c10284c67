-- Let tasks that had been set aside, and can be decoded now, take part again (S20).
-- shared: moment records gates lanes index
--
-- KEYS     the namespace's prefix
-- ARGV     clock, id, ...
-- returns  how many were set aside until now
-- time     O(tasks log N)
local released = 0
for i = 2, #ARGV do
  local id = ARGV[i]
  local H = load(id)
  if call('ZREM', P .. 'aside', id) == 1 and H then
    released = released + 1
    if H.st < FIRST_END then call('ZADD', P .. 'any', H.dead, 'd' .. id) end
    enter(H)
  end
  call('HDEL', P .. 'asidewhy', id)
end
flush()
return released
