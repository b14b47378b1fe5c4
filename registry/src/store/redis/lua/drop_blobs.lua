-- Removes the names that a deleted conversation gave blobs, and each blob without another and a hold.
-- KEYS: when blobs are due, what is counted of the tenant's blobs; of each: blob, names, holds
-- ARGV: conversation, the last epoch of its names, now, '1' if all names are known; the blobs
-- Returns how many blobs it removed.
local removed = 0
for i = 5, #ARGV do
  local at = 3 + (i - 5) * 3
  local blob, names, holds = KEYS[at], KEYS[at + 1], KEYS[at + 2]
  local named = redis.call('ZSCORE', names, ARGV[1])
  if named and tonumber(named) <= tonumber(ARGV[2]) then
    redis.call('ZREM', names, ARGV[1])
    if remove_unused(blob, names, holds, KEYS[1], KEYS[2], ARGV[i], ARGV[4]) then
      removed = removed + 1
    elseif is_unused(blob, names, holds) then
      redis.call('ZADD', KEYS[1], ARGV[3], ARGV[i])
    end
  end
end
return removed
