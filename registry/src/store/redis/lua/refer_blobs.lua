-- Notes that a conversation names blobs, and ends the holds that were for this. A repeat does no harm.
-- KEYS: when blobs are due; of each blob: blob, names, holds
-- ARGV: conversation, epoch; of each blob: id, how many holds end, and of each of these its holder and
--   its latest end: a later one is of another upload
-- Returns how many of the blobs are there.
local found, at = 0, 3
for key = 2, #KEYS, 3 do
  local blob, names, holds = KEYS[key], KEYS[key + 1], KEYS[key + 2]
  local id, ended = ARGV[at], tonumber(ARGV[at + 1])
  if redis.call('HEXISTS', blob, 'bytes') == 1 then
    found = found + 1
    local known = redis.call('ZSCORE', names, ARGV[1])
    if not known or tonumber(known) < tonumber(ARGV[2]) then
      redis.call('ZADD', names, ARGV[2], ARGV[1])
    end
    for i = at + 2, at + 2 * ended, 2 do
      local score = redis.call('ZSCORE', holds, ARGV[i])
      if score and tonumber(score) <= tonumber(ARGV[i + 1]) then
        redis.call('ZREM', holds, ARGV[i])
      end
    end
    if redis.call('ZCARD', holds) == 0 then redis.call('ZREM', KEYS[1], id) end
  end
  at = at + 2 + 2 * ended
end
return found
