-- Notes that a conversation names blobs, and ends the holds that were for this. A repeat does no harm.
-- KEYS: when blobs are due; of each blob: blob, names, holds
-- ARGV: conversation, its holder, epoch; the blobs
-- Returns how many of the blobs are there.
local found = 0
for i = 4, #ARGV do
  local at = 2 + (i - 4) * 3
  local names, holds = KEYS[at + 1], KEYS[at + 2]
  if redis.call('HEXISTS', KEYS[at], 'bytes') == 1 then
    found = found + 1
    local known = redis.call('ZSCORE', names, ARGV[1])
    local holders = redis.call('ZRANGE', holds, 0, -1)
    if not known or tonumber(known) < tonumber(ARGV[3]) then
      redis.call('ZADD', names, ARGV[3], ARGV[1])
    end
    for _, holder in ipairs(holders) do
      if holder == ARGV[2] or holder:sub(1, 2) == 'u:' then redis.call('ZREM', holds, holder) end
    end
    if redis.call('ZCARD', holds) == 0 then redis.call('ZREM', KEYS[1], ARGV[i]) end
  end
end
return found
