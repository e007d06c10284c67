-- List all tasks of some statuses that have indexes of their own, if they are few (S3).
-- shared: moment
--
-- KEYS     the namespace's prefix
-- ARGV     clock, most, name of an index, ...
-- returns  {id, ...}, or {-1} if they are more
-- time     O(most)
local answer, most = {}, tonumber(ARGV[2])
for i = 3, #ARGV do
  most = most - call('ZCARD', P .. ARGV[i])
  if most < 0 then return {-1} end
  for _, id in ipairs(call('ZRANGE', P .. ARGV[i], 0, -1)) do answer[#answer + 1] = id end
end
return answer
