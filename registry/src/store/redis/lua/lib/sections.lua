-- Library in front of the script that appends.
-- fields, commands, parts: the indexes of the first arguments of each, after the events.
local fields = 11 + ARGV[7]
local commands = fields + ARGV[8]
local parts = commands + ARGV[9]
