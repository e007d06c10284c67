-- Extend the leases that are still held (S8).
-- shared: moment records gates lanes index
--
-- KEYS     the namespace's prefix
-- ARGV     clock, lease (milliseconds), for each lease: id, token, nonce
-- returns  {for each: end of the lease or '' if it is lost, 1 if cancellation was requested, revision before or ''}
-- time     O(leases log N)
local lease, answer = tonumber(ARGV[2]), {}
for i = 3, #ARGV, 3 do
  local H, n = load(ARGV[i]), #answer
  local held = H and H.til > now and H.nonce == ARGV[i + 2] and H.tok == tonumber(ARGV[i + 1])
  answer[n + 1], answer[n + 2], answer[n + 3] = '', H and H.flag > 0 and 1 or 0, ''
  if held then
    answer[n + 3] = H.rev
    H.til = math.max(H.til, now + lease)
    call('ZADD', P .. 'leases', H.til, H.id)
    save(H)
    answer[n + 1] = H.til
  end
end
return answer
