-- Library in front of the scripts that claim although the server is full: only conversations that
-- exist, so that they can be deleted. A claim on another one would be kept for nothing.
-- KEYS 1: conversation
if redis.call('HEXISTS', KEYS[1], 'seq') == 0 then
  return redis.error_reply('OOM the server has no memory for another conversation')
end

