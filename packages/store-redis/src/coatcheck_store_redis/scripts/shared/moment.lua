-- The time of one step, by the server's clock, and the prefix of all keys.
--
-- Every script has one key, the namespace's prefix "{namespace}:", and its first argument is empty, or, in tests, the
-- microseconds since 1970 that a clock of theirs shows.
if redis.replicate_commands then redis.replicate_commands() end -- Redis 6: replicate what was done, not the script
local call = redis.call
local P = KEYS[1]
local now -- milliseconds since 1970, rounded down: what is compared
local stamp -- rounded up: what a rate is stamped with, so that no window is too short
if ARGV[1] == '' then
  local at = call('TIME')
  now = at[1] * 1000 + math.floor(at[2] / 1000)
  stamp = at[2] % 1000 > 0 and now + 1 or now
else
  now, stamp = math.floor(ARGV[1] / 1000), math.ceil(ARGV[1] / 1000)
end
