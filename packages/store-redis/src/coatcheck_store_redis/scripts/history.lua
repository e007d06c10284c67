-- Tell what was done to a gate (S11).
-- shared: moment
--
-- KEYS     the namespace's prefix
-- ARGV     clock, gate
-- returns  {a change as JSON, ...}, the oldest first
-- time     O(changes that are remembered)
return call('LRANGE', P .. 'hist:' .. ARGV[2], 0, -1)
