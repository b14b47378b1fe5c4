-- Library in front of the script that appends, when the events before the commit are aside: makes them
-- the journal of a conversation that is not there yet. Their key is the last one, and their number the
-- last argument. What the script would refuse is refused before that.
if redis.call('LLEN', KEYS[#KEYS]) ~= tonumber(ARGV[#ARGV]) then return 'LOST' end
redis.call('RENAME', KEYS[#KEYS], KEYS[2])
redis.call('PERSIST', KEYS[2])
