-- Begins, changes or ends the rollout of a revision, which is a field beside the newest revision.
-- KEYS: newest, revisions, the call's outcome, responses, expiries; the chains
-- ARGV: name, revision or '' to end it, percent, now or ''; the responses; the chains
-- Returns 1, or 0 and writes nothing if there is none to end, or if the name or the revision is not
-- there or the revision is the newest; the same answer again for the same call. Returns 3 and writes
-- nothing if a chain has another end.
local name, revision, percent, now = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local outcome = earlier(KEYS[3])
if outcome then return outcome end
if not follows() then return 3 end
local newest, present = unpack(redis.call('HMGET', KEYS[1], name, name .. ' rollout'))
local may = newest and present
if revision ~= '' then
  may = newest and newest ~= revision and redis.call('HEXISTS', KEYS[2], revision) == 1
end
if not may then return remember(KEYS[3], 0) end
record()
remember(KEYS[3], 1)
if revision == '' then
  redis.call('HDEL', KEYS[1], name .. ' rollout')
else
  redis.call('HSET', KEYS[1], name .. ' rollout', revision .. ' ' .. percent)
end
if now ~= '' then prune(KEYS[4], KEYS[5], now) end
keep(KEYS[4], KEYS[5], 5)
return 1
