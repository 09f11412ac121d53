value = 3
return value
