-- Return a page of all tasks, by id (S3).
-- shared: moment records
--
-- KEYS     the namespace's prefix
-- ARGV     clock, id to go on after or '', limit, statuses as ",0,4," or '', created before or '', created after or ''
-- returns  {id to go on after or '' if there are no more, id, record, document, ...}, those that fit, as far as is told here
-- time     O(limit + log N)
local limit, statuses, early, late = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local ids = call('ZRANGEBYLEX', P .. 'ids', ARGV[2] == '' and '-' or '(' .. ARGV[2], '+', 'LIMIT', 0, limit)
local answer = {#ids == limit and ids[#ids] or ''}
for _, id in ipairs(ids) do
  local value = call('GET', P .. 't:' .. id)
  local H = value and parse(id, value)
  if H then
    local created = H.created
    if (statuses == '' or string.find(statuses, ',' .. H.st .. ',', 1, true)) and (not early or created < early)
        and (not late or created > late) then
      local n = #answer
      answer[n + 1], answer[n + 2], answer[n + 3] = id, value, document(id)
    end
  end
end
return answer
