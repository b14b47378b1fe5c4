-- Library in front of the script that appends, when the events before the commit are aside: makes them
-- the journal of a conversation that is not there yet. Their key is the last one. What the script
-- would refuse later is refused here, before anything is written.
local there = redis.call('HMGET', KEYS[1], 'node', 'incarnation', 'epoch', 'seq', 'nonce')
if holds(there) and there[5] ~= ARGV[4] then
  if there[4] then return 'CONFLICT' end
  if redis.call('LLEN', KEYS[#KEYS]) ~= tonumber(ARGV[5]) then return 'LOST' end
  if ARGV[12]:find('r') and is_answered(KEYS[6], 14 + ARGV[13]) then return 'FENCED' end
  redis.call('RENAME', KEYS[#KEYS], KEYS[2])
  redis.call('PERSIST', KEYS[2])
  redis.call('HSET', KEYS[1], 'seq', ARGV[5])
end
