-- Reads a conversation.
-- KEYS: conversation, journal, state
-- ARGV: the format that the cached state must have, '' for no cache; the bytes of a page
-- Returns nothing where there is no conversation; else its seq, its epoch, the cached state or '',
-- the first page of the events after it, and the data key or ''.
local row = redis.call('HMGET', KEYS[1], 'seq', 'epoch', 'key')
return load(row[1], row[2], KEYS[2], KEYS[3], ARGV[1], ARGV[2], row[3])
