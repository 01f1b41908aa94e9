-- The database of examples/shop_live.py: tables as any shop has them. Nothing here is made for Headwater.

CREATE TABLE customers (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    country text NOT NULL
);

CREATE TABLE products (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    category text NOT NULL,
    description text NOT NULL
);

CREATE TABLE stock (
    product_id bigint PRIMARY KEY,
    units int NOT NULL
);

-- The price of now. What it was before is known to nobody but the log.
CREATE TABLE prices (
    product_id bigint PRIMARY KEY,
    price numeric(10, 2) NOT NULL,
    since timestamptz NOT NULL
);

CREATE TABLE orders (
    id bigint PRIMARY KEY,
    customer_id bigint NOT NULL,
    product_id bigint NOT NULL,
    units int NOT NULL,
    amount numeric(10, 2) NOT NULL,
    at timestamptz NOT NULL
);

CREATE TABLE payments (
    id bigint PRIMARY KEY,
    order_id bigint NOT NULL,
    amount numeric(10, 2) NOT NULL,
    at timestamptz NOT NULL
);
