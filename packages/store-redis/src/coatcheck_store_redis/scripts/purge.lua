-- Delete tasks that ended before a time (S14).
-- shared: moment records gates lanes index
--
-- KEYS     the namespace's prefix
-- ARGV     clock, before (milliseconds), limit, status, ...
-- returns  {how many were deleted, 1 if there may be more}
-- time     O(limit log N)
local until_, limit = ARGV[2], tonumber(ARGV[3])
local purged, more = 0, 0
for i = 4, #ARGV do
  local key = P .. 'fin:' .. ARGV[i]
  local left = limit - purged
  local ids = left > 0 and call('ZRANGEBYSCORE', key, '-inf', '(' .. until_, 'LIMIT', 0, left) or {}
  if #ids == left then more = 1 end
  for _, id in ipairs(ids) do
    call('ZREM', key, id)
    local H = load(id)
    if H and H.st >= FIRST_END then
      call('DEL', P .. 't:' .. id, P .. 'd:' .. id)
      call('ZREM', P .. 'ids', id)
      call('ZREM', P .. 'aside', id)
      call('HDEL', P .. 'asidewhy', id)
      if H.dk ~= '' and call('HGET', P .. 'dedup', H.dk) == id then call('HDEL', P .. 'dedup', H.dk) end
      if H.ext ~= '' then
        local kept, value = {}, call('HGET', P .. 'ext', H.ext)
        for _, other in ipairs(value and cmsgpack.unpack(value) or {}) do
          if other ~= id then kept[#kept + 1] = other end
        end
        if #kept > 0 then call('HSET', P .. 'ext', H.ext, cmsgpack.pack(kept)) else call('HDEL', P .. 'ext', H.ext) end
      end
      count('count', lane_of(H.sl).h .. '\0' .. H.st, -1)
      refer(H.sl, -1)
      refer(H.ql, -1)
      purged = purged + 1
    end
  end
end
flush()
return {purged, more}
