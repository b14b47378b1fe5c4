-- Replaces an entry of the operators' audit, at the place that it has.
-- KEYS: the entries of the chain
-- ARGV: seq, the entry, the one that is expected there or '' for any
-- Returns 1, also for a repeat; 0 and writes nothing if the chain has dropped the entry, or has
-- another one.
local seq, entry, expected = ARGV[1], ARGV[2], ARGV[3]
local present = redis.call('ZRANGE', KEYS[1], seq, seq, 'BYSCORE')
local is_expected = expected == '' or present[1] == expected or present[1] == entry
if #present == 0 or not is_expected then return 0 end
redis.call('ZREM', KEYS[1], unpack(present))
redis.call('ZADD', KEYS[1], seq, entry)
return 1
