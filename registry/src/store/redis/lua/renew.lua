-- Renews the lease of a member, and removes all others that were silent for longer than theirs. If
-- the member was itself silent for half of its lease, this server may have been away, and then the
-- silence of the others says nothing: it counts from now on.
-- KEYS: members, when each was last seen, the dead, the last process of each name
-- ARGV: name, incarnation, the member
-- Returns who is alive, or nothing where this incarnation is no member.
local name, incarnation, entry = ARGV[1], ARGV[2], ARGV[3]
local stored = redis.call('HGET', KEYS[1], name)
local me = stored and cjson.decode(stored)
if not me or me.incarnation ~= incarnation then return false end
local was_away = silence(name) * 2 > me.lease_ms
redis.call('HSET', KEYS[1], name, entry)
redis.call('ZADD', KEYS[2], now, name)
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local other = cjson.decode(all[i + 1])
  if was_away then
    redis.call('ZADD', KEYS[2], now, all[i])
  elseif silence(all[i]) > other.lease_ms then
    remove(all[i], other.incarnation)
  end
end
return alive()
