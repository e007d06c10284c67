-- Declare that the calls of claims are about to be made, and extend their leases (S17).
-- shared: moment records gates lanes index
--
-- KEYS     the namespace's prefix
-- ARGV     clock, lease (milliseconds), for each claim: id, token, nonce, version, revision that the caller knows
-- returns  {now, for each: 'ok', 'lost', 'canceled', 'overdue' or 'aged', revision, start, end of the lease, and the record
--          and the document if its revision was not the known one}
-- time     O(claims log N)
local lease, AGED = tonumber(ARGV[2]), 100
local answer = {now}
local function say(word, H, record)
  local n = #answer
  answer[n + 1] = word
  answer[n + 2], answer[n + 3], answer[n + 4] = H and H.rev or '', H and H.started or '', H and H.til or ''
  answer[n + 5], answer[n + 6] = record or '', record and document(H.id) or ''
end
for i = 3, #ARGV, 5 do
  local H = load(ARGV[i])
  if not (H and H.til > now and H.nonce == ARGV[i + 2] and H.tok == tonumber(ARGV[i + 1])
      and H.ver == tonumber(ARGV[i + 3])) then
    say('lost')
  else
    local known = H.rev == tonumber(ARGV[i + 4])
    local word = 'ok'
    if H.started == 0 then
      if H.flag > 0 then word = 'canceled'
      elseif H.dead <= now then word = 'overdue'
      elseif H.granted > 0 and now - H.granted > AGED then word = 'aged' end
    end
    local value
    if word == 'ok' then
      if H.started == 0 then H.started = now end
      H.til = math.max(H.til, now + lease)
      call('ZADD', P .. 'leases', H.til, H.id)
      value = save(H)
    elseif not known then
      value = render(H)
    end
    say(word, H, not known and value or nil)
  end
end
return answer
