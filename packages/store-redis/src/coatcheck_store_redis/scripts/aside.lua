-- Set tasks aside that cannot be decoded; what this claim had given them is taken back (S20).
-- shared: moment records gates lanes index
--
-- KEYS     the namespace's prefix
-- ARGV     clock, for each task: id, nonce of the claim that is undone or '', reason
-- returns  the number of tasks
-- time     O(tasks log N)
for i = 2, #ARGV, 3 do
  local id, nonce = ARGV[i], ARGV[i + 1]
  aside(id, ARGV[i + 2])
  local H = load(id)
  if H then
    local undone = nonce ~= '' and H.nonce == nonce and H.til > 0
    leave(H)
    call('ZREM', P .. 'any', 'd' .. id)
    if undone then
      local rest, kind = string.match(H.log, '^(.*)\30([sd]) [^\30]*$')
      if not rest then rest, kind = '', string.sub(H.log, 1, 1) end
      if H.granted > 0 then take_back(lane_of(kind == 's' and H.sl or H.ql).gates, H.granted) end
      if kind == 's' then
        local h = lane_of(H.sl).h
        count('count', h .. '\0' .. SUBMITTING, -1)
        count('count', h .. '\0' .. PENDING, 1)
        call('ZREM', P .. 'submitting', id)
        release(lane_of(H.sl).gates)
        H.st, H.slots = PENDING, false
      end
      H.log, H.ver, H.tok, H.til, H.nonce, H.granted, H.started = rest, H.ver - 1, H.tok - 1, 0, '', 0, 0
      save(H)
    end
  end
end
flush()
return (#ARGV - 1) / 3
