-- List tallies, by name (S21).
-- shared: moment
--
-- KEYS     the namespace's prefix
-- ARGV     clock, first name and last name as ZRANGEBYLEX wants them, how many to look at
-- returns  {name to go on after or '', for each that is not forgotten: name, total, when it is forgotten}
-- time     O(how many to look at + log tallies)
local names = call('ZRANGEBYLEX', P .. 'tallynames', ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])
local answer = {#names == tonumber(ARGV[4]) and names[#names] or ''}
for _, name in ipairs(names) do
  local total, ends = string.match(call('HGET', P .. 'tally', name) or '', '^(%-?%d+) (%d+)')
  if total and tonumber(ends) > now then
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3] = name, total, ends
  end
end
return answer
