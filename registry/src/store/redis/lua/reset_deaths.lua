-- Forgets the deaths of holders that claims of a conversation counted.
-- KEYS: conversation
-- Returns DONE.
redis.call('HDEL', KEYS[1], 'deaths')
return 'DONE'
