// What a call is read as: `exchange.mjs MODULE CALLS`, CALLS a JSON list of [path, request, response, whole].
const [, , module, calls] = process.argv;
const { isCall, readExchange } = await import(module);

const read = ([path, request, response, whole]) => {
  if (!isCall(`http://h${path}`)) return "no call";
  try {
    return readExchange(`http://h${path}`, JSON.stringify(request), response, whole);
  } catch (error) {
    return error.name;
  }
};
console.log(JSON.stringify(JSON.parse(calls).map(read)));
