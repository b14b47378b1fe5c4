-- Changes webhooks, if their list has this version.
-- KEYS: webhooks, version, the call's outcome; the chains
-- ARGV: the version, number of changes; of each: webhook, what is stored of it or '' to remove it;
--   the chains
-- Returns 1 if it did, also for a repeat. Returns 0 and writes nothing if the version is another
-- one, and 3 if a chain has another end.
local version, changes = ARGV[1], ARGV[2]
local outcome = earlier(KEYS[3])
if outcome then return outcome end
if not follows() then return 3 end
if (redis.call('GET', KEYS[2]) or '0') ~= version then return 0 end
record()
for at = 3, 1 + 2 * changes, 2 do
  if ARGV[at + 1] == '' then redis.call('HDEL', KEYS[1], ARGV[at])
  else redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
end
redis.call('INCR', KEYS[2])
return remember(KEYS[3], 1)
