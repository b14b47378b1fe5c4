-- Finds conversations that are not there and whose names of blobs were left: a node that does not know
-- of names has deleted them. They are dropped as those of a conversation that was never written.
-- KEYS: conversations with blobs, deletions with names to drop; of each conversation: it, its blobs
-- ARGV: the conversations
-- Returns how many of them are not there and have names.
local lost = 0
for i = 1, #ARGV do
  local conversation, named = KEYS[2 * i + 1], KEYS[2 * i + 2]
  if redis.call('HLEN', conversation) == 0 then
    local last = redis.call('ZRANGE', named, -1, -1, 'WITHSCORES')
    if last[2] then
      redis.call('ZADD', KEYS[2], 0, last[2] .. ':' .. ARGV[i])
      lost = lost + 1
    end
    redis.call('ZREM', KEYS[1], ARGV[i])
  end
end
return lost
