-- List what is set aside, by id (S20).
-- shared: moment
--
-- KEYS     the namespace's prefix
-- ARGV     clock, id to go on after or '', limit
-- returns  {id, "since reason", ...}
-- time     O(limit + log N)
local ids = call('ZRANGEBYLEX', P .. 'aside', ARGV[2] == '' and '-' or '(' .. ARGV[2], '+', 'LIMIT', 0, ARGV[3])
local answer = {}
for _, id in ipairs(ids) do
  answer[#answer + 1] = id
  answer[#answer + 1] = call('HGET', P .. 'asidewhy', id) or '0 '
end
return answer
