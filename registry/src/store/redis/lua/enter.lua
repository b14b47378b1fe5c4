-- Makes an incarnation a member. An earlier one of its name is dead then, and so is its process.
-- ARGV: name, incarnation, process, the member
-- Returns who is alive, or nothing where this incarnation is dead, or a younger process lives.
local function dead(kind, which)
  return redis.call('ZSCORE', KEYS[3], kind .. ARGV[1] .. '/' .. which)
end
local old, last = redis.call('HGET', KEYS[1], ARGV[1]), redis.call('HGET', KEYS[4], ARGV[1])
local other = old and cjson.decode(old)
local lives = other and silent(ARGV[1]) <= other.lease_ms
if dead('incarnation ', ARGV[2]) or lives and dead('process ', ARGV[3]) then return false end
local was = other and other.incarnation
if was and was ~= ARGV[2] then remove(ARGV[1], was) end
if last and last ~= ARGV[3] then died('process ', ARGV[1], last) end
redis.call('HSET', KEYS[4], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[4])
redis.call('ZADD', KEYS[2], now, ARGV[1])
return alive()
