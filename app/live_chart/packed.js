// What Python deflated to send less: a chart's figure and its table, as they were, before anything looks at them.

async function inflated(packed) {
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

// the figure is one line of JSON, the table the next
export async function unpacked(data) {
  const text = await inflated(data.packed);
  const end = text.indexOf("\n");
  return { ...data, fig: text.slice(0, end), table: JSON.parse(text.slice(end + 1)) };
}
