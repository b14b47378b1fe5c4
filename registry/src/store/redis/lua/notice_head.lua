-- Reads the head of a queue of notices.
-- KEYS: due, queue, attempts
-- ARGV: id
-- Returns the notice, its attempts or '', and when it is due; nothing if nothing is owed.
local id = ARGV[1]
local notice, due = redis.call('LINDEX', KEYS[2], 0), redis.call('ZSCORE', KEYS[1], id)
if not notice or not due then return false end
return {notice, redis.call('HGET', KEYS[3], id) or '', due}
