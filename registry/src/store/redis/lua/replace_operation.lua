-- Replaces an entry of the operators' audit, at the place that it has.
-- KEYS: the entries of the chain
-- ARGV: seq, the entry
-- Returns 1, also for a repeat; 0 and writes nothing if the chain has dropped the entry.
local present = redis.call('ZRANGE', KEYS[1], ARGV[1], ARGV[1], 'BYSCORE')
if #present == 0 then return 0 end
redis.call('ZREM', KEYS[1], unpack(present))
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])
return 1
