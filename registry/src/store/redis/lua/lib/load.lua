-- Library in front of the scripts that read a conversation.
-- load: reads the cached state of a conversation and the events after it.
-- wanted_format: the format that the cache must have; '' for all events and no cache
-- Returns nothing where there is no conversation; else its seq, the cached state or '', its events.
local function load(conversation, journal, cache, wanted_format)
  local seq = redis.call('HGET', conversation, 'seq')
  if not seq then return false end
  local cached = wanted_format ~= '' and redis.call('GET', cache) or ''
  local format, after, state = cached:match('^(%d+) (%d+) (.*)$')
  if format ~= wanted_format or tonumber(after) > tonumber(seq) then after, state = '0', '' end
  return {seq, state, redis.call('LRANGE', journal, after, -1)}
end

