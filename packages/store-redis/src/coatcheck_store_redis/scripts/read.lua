-- Return records, those that the caller does not know as they are (S3).
-- shared: moment records
--
-- KEYS     the namespace's prefix
-- ARGV     clock, for each task: id, revision that the caller knows or ''
-- returns  {now, for each: its record and its document; '' and '' if there is none, '=' and '' if it is known}
-- time     O(tasks)
local answer = {now}
for i = 2, #ARGV, 2 do
  local id, n = ARGV[i], #answer
  local value = call('GET', P .. 't:' .. id)
  answer[n + 1], answer[n + 2] = '', ''
  if value then
    local known, H = tonumber(ARGV[i + 1]), nil
    if known then H = parse(id, value) end
    if H and H.rev == known then
      answer[n + 1] = '='
    else
      answer[n + 1], answer[n + 2] = value, document(id)
    end
  end
end
return answer
