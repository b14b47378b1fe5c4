-- Says that a member lives, and removes all others that were silent for longer than their lease. If
-- it was itself silent for half of its own, then this server was away perhaps, and the silence of
-- the others says nothing: it counts from now on.
-- ARGV: name, incarnation, the member
-- Returns who is alive, or nothing where this incarnation is no member.
local mine = redis.call('HGET', KEYS[1], ARGV[1])
local me = mine and cjson.decode(mine)
if not me or me.incarnation ~= ARGV[2] then return false end
local away = silent(ARGV[1]) * 2 > me.lease_ms
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('ZADD', KEYS[2], now, ARGV[1])
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local other = cjson.decode(all[i + 1])
  if away then
    redis.call('ZADD', KEYS[2], now, all[i])
  elseif silent(all[i]) > other.lease_ms then
    remove(all[i], other.incarnation)
  end
end
return alive()
