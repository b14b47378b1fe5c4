-- Library in front of the scripts that append and delete: calls that wait in queues. A conversation
-- keeps its entries itself, too, one in each line, so that they are found again.
-- dequeue: removes these entries from the index.
local function dequeue(queues, entries)
  for entry in (entries or ''):gmatch('[^\n]+') do redis.call('ZREM', queues, entry) end
end

-- requeue: replaces the entries of the conversation by those that ARGV lists from `at` on: their number,
--   then each. Returns the index of the argument after them.
local function requeue(queues, at, before)
  local last = at + ARGV[at]
  dequeue(queues, before)
  redis.call('HDEL', KEYS[1], 'queued')
  if last > at then
    redis.call('HSET', KEYS[1], 'queued', table.concat(ARGV, '\n', at + 1, last))
    for i = at + 1, last do redis.call('ZADD', queues, 0, ARGV[i]) end
  end
  return last + 1
end

