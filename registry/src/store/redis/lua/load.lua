-- Reads the cached state of a conversation and the events after it.
-- KEYS: conversation, journal, state
-- ARGV: the format that the cache must have; '' for all events and no cache
-- Returns nothing where there is no conversation; else its seq, the cached state or '', its events.
local seq = redis.call('HGET', KEYS[1], 'seq')
if not seq then return false end
local cached = ARGV[1] ~= '' and redis.call('GET', KEYS[3]) or ''
local format, after, state = cached:match('^(%d+) (%d+) (.*)$')
if format ~= ARGV[1] or tonumber(after) > tonumber(seq) then after, state = '0', '' end
return {seq, state, redis.call('LRANGE', KEYS[2], after, -1)}
